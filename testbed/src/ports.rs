//! Free loopback ports.

use crate::Error;
use std::net::{Ipv4Addr, TcpListener};

/// `N` different ports that were free a moment ago. All are held until all are known, so that none comes twice.
/// Another process may still take one before its component binds it; the caller starts again with others then.
pub(crate) fn free<const N: usize>() -> Result<[u16; N], Error> {
    let held = || -> std::io::Result<Vec<(TcpListener, u16)>> {
        (0..N)
            .map(|_| {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                let port = listener.local_addr()?.port();
                Ok((listener, port))
            })
            .collect()
    };
    let held = held().map_err(Error::io("cannot find a free port on", "127.0.0.1"))?;
    let mut ports = [0; N];
    for (port, (_, found)) in ports.iter_mut().zip(&held) {
        *port = *found;
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ports_are_different_and_free() {
        let ports = free::<16>().unwrap();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len());
        for port in ports {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        }
    }
}
