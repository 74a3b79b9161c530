"""What runs on the pod: standard library only, Python 3.8+, one zipapp. It imports nothing of the laptop's side."""
