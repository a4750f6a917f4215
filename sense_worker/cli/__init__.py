"""The command line, over `sense_worker.operator`; heavy imports happen inside the commands, so `--help` stays fast."""
