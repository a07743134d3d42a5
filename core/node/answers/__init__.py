"""Answers to requests: prompts, tokens, logs and saved sessions."""
