"""The broker on Redis or Valkey: streams for first deliveries, the store for everything else."""
