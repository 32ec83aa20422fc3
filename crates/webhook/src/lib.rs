//! Admission over HTTPS.
