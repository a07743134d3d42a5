"""Evaluation by lm-eval: what the API of the ring answers, and what mlx_lm does with the model in one process."""
