# An agent's pane: the host as a job of an interactive shell. When the host has quit, the shell has the terminal for a
# moment, and whatever is typed then would run as a command: it is written down instead.
# Arguments: HOST LOG PYTHON DIALOGS (how likely a line leads to one) SCRIPT (the one that stands in for the host)
set -m
round=0
while :; do
  round=$((round + 1))
  (exec -a "$1" "$3" "$5" tests.conformance.composer "$1" "$2" "$2.$round" "$4")
  if IFS= read -r -s -n 1 -t 0.5 key; then
    printf '{"event": "key", "view": "shell", "data": "%q"}\n' "$key" >>"$2"
  fi
done
