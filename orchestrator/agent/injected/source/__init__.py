"""What is read from the source of a program, without running it: all take `ast`."""
