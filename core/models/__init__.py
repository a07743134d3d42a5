"""Models: their files, text and tokenizers, and the layer slices that a Mac runs."""
