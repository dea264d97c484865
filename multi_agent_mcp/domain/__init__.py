"""Pure frozen values and their rules. Nothing here touches the disk, the clock or the environment."""
