"""What runs on the pod: standard library only, Python 3.8+, shipped as one zipapp. Imports nothing from the laptop side."""
