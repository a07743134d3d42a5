"""What lies on the disk: catalogue, headers, layout, parts, fetching. No mlx."""
