//! What the list of tools promises to every door.
