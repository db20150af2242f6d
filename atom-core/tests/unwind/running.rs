//! Programs whose code was moved, run.
