"""What is counted over a corpus of integers: words, passages and n-grams, exactly and in bounded memory."""
