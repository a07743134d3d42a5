"""Model files on disk: catalogue, headers, layout, byte ranges, downloads. No mlx."""
