"""What every kernel uses: tiles and their loads, the softmax, launches."""
