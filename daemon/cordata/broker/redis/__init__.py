"""The broker on Redis or Valkey: streams for what goes well, the store for everything else."""
