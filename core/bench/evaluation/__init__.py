"""Evaluation with lm-eval: the ring through its API, compared with mlx_lm in one process."""
