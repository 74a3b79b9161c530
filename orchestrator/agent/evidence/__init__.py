"""What is seen of a stage: its files, the tree it leaves, where its code came from, which exit codes it lost."""
