"""What runs tests: pytest, of which the top has the plugin, and others; what they found, lost and left out."""
