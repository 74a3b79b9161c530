"""Result -> what people read."""
