"""Who runs next? Pure logic, no sockets, no clocks of its own."""
