"""Actions: key bindings, controllers and the palette."""
