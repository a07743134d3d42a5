"""Between text and tokens: tokenizer and chat template."""
