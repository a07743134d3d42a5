"""What the node said, folded into values that the screens show. Pure."""
