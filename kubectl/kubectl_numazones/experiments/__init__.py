"""What-if, sweep and size: experiments on a workload, run and drawn."""
