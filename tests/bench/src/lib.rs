//! Empty: the manifest beside it names the crates whose sources are measured.
