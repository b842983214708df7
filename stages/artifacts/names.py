"""What files of a model folder are called."""

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
WEIGHTS = "model.safetensors"
BAG = "bag.json"  # how much of a bag of words a retriever keeps
HEADS = "heads.safetensors"  # what pre-training used beside the encoder; other programs ignore it
