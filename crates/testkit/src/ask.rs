//! What is asked: a tool and its arguments as they travel, right or wrong.

use serde_json::{Map, Value, json};

/// A call as a client would send it.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// The tool.
    pub tool: &'static str,
    /// The arguments, `request_id` among them.
    pub arguments: Map<String, Value>,
}

/// `set_interval` under `request_id`: automation `id`, as it was at `version`, is to run every `interval` minutes.
#[must_use]
pub fn set_interval(request_id: &str, id: i64, version: i64, interval: i64) -> Ask {
    let ask = Ask { tool: "set_interval", arguments: Map::new() };
    ask.with("request_id", json!(request_id))
        .with("id", json!(id))
        .with("expected_version", json!(version))
        .with("interval_minutes", json!(interval))
}

impl Ask {
    /// The same with another argument.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.arguments.insert(name.to_owned(), value);
        self
    }

    /// The same without an argument.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.arguments.shift_remove(name);
        self
    }

    /// The arguments as JSON text.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(&self.arguments).unwrap()
    }
}
