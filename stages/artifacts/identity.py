"""When two texts are the same, and a hash by which one is known again."""

import re
from hashlib import blake2b

WORDS = re.compile(r"\w+")


def normalised(text: str) -> str:
    """The words of ``text`` without case, punctuation and white space: texts that read the same are the same."""
    return " ".join(WORDS.findall(text.casefold()))


def digest(text: str) -> int:
    """64 bits, the same on every machine. Of 10 million texts two share one with a probability of 3e-6."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little")
