"""Text to tokens and back: tokenizer, chat template, answer parts, grammars."""
