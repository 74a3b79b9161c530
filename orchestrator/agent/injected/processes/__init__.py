"""How processes, and programs inside one, start and end, and whether anybody notices that they fail."""
