"""Tests with real models, tokenizers and chat templates, which package registries hold."""
