//! Server-side printing.
