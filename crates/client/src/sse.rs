//! Server-sent events, as far as an answer needs them: the data of each event, in memory bounded by its caller.

/// Cuts a stream into events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
}

impl Events {
    /// Takes the next bytes; gives the data of every event that they complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut complete = Vec::new();
        for byte in bytes {
            let second_half = *byte == b'\n' && self.after_cr;
            self.after_cr = *byte == b'\r';
            match byte {
                b'\n' if second_half => {}
                b'\n' | b'\r' => complete.extend(self.end_of_line()),
                other => self.line.push(*other),
            }
        }
        complete
    }

    /// Bytes of the event that is not complete yet.
    pub(crate) fn held(&self) -> usize {
        self.line.len() + self.data.len()
    }

    /// A line ended: an empty one ends the event.
    fn end_of_line(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            return std::mem::take(&mut self.has_data).then_some(data);
        }
        if let Some(rest) = line.strip_prefix(b"data") {
            let value = match rest.strip_prefix(b":") {
                Some(value) => value.strip_prefix(b" ").unwrap_or(value),
                None if rest.is_empty() => rest,
                None => return None,
            };
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            self.data.extend_from_slice(value);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stream: &str, expected: &[&str]) {
        let expected: Vec<Vec<u8>> = expected.iter().map(|data| data.as_bytes().to_vec()).collect();
        assert_eq!(Events::default().push(stream.as_bytes()), expected, "{stream:?}");
        let mut bytewise = Events::default();
        let got: Vec<Vec<u8>> =
            stream.as_bytes().iter().flat_map(|byte| bytewise.push(std::slice::from_ref(byte))).collect();
        assert_eq!(got, expected, "byte by byte: {stream:?}");
    }

    #[test]
    fn events_are_cut_as_the_standard_says() {
        check("", &[]);
        check("data: a\n\n", &["a"]);
        check("data:a\r\n\r\ndata: b\r\rdata\n\n", &["a", "b", ""]);
        check(": comment\nevent: message\nid: 7\nretry: 10\ndata: {\ndata: }\n\n", &["{\n}"]);
        check("id: 7\n\n", &[]);
        check("data:  two blanks\n\n", &[" two blanks"]);
        check("database: x\n\n", &[]);
        check("data: unfinished\n", &[]);
    }
}
