"""What files of a model folder are called."""

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
HEADS = "heads.safetensors"  # what pre-training used beside the encoder; other programs ignore it
