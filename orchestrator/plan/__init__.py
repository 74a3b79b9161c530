"""What a run does, said whole before it is launched."""
