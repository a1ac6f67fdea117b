//! An address to listen on, as it is typed; what is not one is answered with what to write.

use std::net::{IpAddr, SocketAddr};

/// Reads an address and port; a name is not looked up, since it may be several addresses.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = match text.parse() {
        Ok(address) => return Ok(address),
        Err(_) => text,
    };
    let port = wrong.rsplit_once(':').map_or(wrong, |(_, port)| port);
    let write = match (port.parse::<u16>(), wrong.trim_matches(['[', ']']).parse::<IpAddr>()) {
        (_, Ok(ip)) => format!("the port is missing: write {}", SocketAddr::new(ip, 8080)),
        (Ok(port), _) if wrong.trim_start_matches(':') == port.to_string() => {
            format!("the address is missing: write 127.0.0.1:{port}")
        }
        (Ok(port), _) => format!("names are not looked up: write 127.0.0.1:{port}, or [::1]:{port}"),
        _ => "write an address and a port, as 127.0.0.1:8080 or [::1]:8080".to_owned(),
    };
    Err(write)
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn what_is_no_address_is_answered_with_what_to_write() {
        for (text, expected) in [
            ("127.0.0.1:0", Ok("127.0.0.1:0")),
            ("[::1]:9000", Ok("[::1]:9000")),
            ("9000", Err("the address is missing: write 127.0.0.1:9000")),
            (":9000", Err("the address is missing: write 127.0.0.1:9000")),
            ("localhost:9000", Err("names are not looked up: write 127.0.0.1:9000, or [::1]:9000")),
            ("127.0.0.1", Err("the port is missing: write 127.0.0.1:8080")),
            ("::1", Err("the port is missing: write [::1]:8080")),
            ("[::1]", Err("the port is missing: write [::1]:8080")),
            ("localhost", Err("write an address and a port, as 127.0.0.1:8080 or [::1]:8080")),
            ("127.0.0.1:90000", Err("write an address and a port, as 127.0.0.1:8080 or [::1]:8080")),
            ("", Err("write an address and a port, as 127.0.0.1:8080 or [::1]:8080")),
        ] {
            let got = address(text).map(|address| address.to_string());
            assert_eq!(got.as_deref().map_err(String::as_str), expected, "{text}");
        }
    }
}
