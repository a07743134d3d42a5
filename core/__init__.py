"""What macluster does, without a screen: three kinds of process and the values they exchange."""
