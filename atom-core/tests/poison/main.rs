//! Liveness, judged by running programs.
