"""One run on the pod: its stages, their processes, its journal."""
