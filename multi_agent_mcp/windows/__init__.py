"""The tmux windows of a team: opened by `up`, kept by the supervisor, closed by `down`."""
