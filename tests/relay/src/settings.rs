//! What the relay does to the bytes that pass; changed while it runs.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the client to the target.
    Up,
    /// From the target to the client.
    #[default]
    Down,
}

/// Where in a connection's bytes something happens: at one place, or at random places with this mean distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    At(u64),
    Mean(u64),
}

/// The settings with their defaults, as JSON names them; `tests/harness/relay.py` explains each.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    pub seed: u64,
    pub rate: Option<f64>,
    pub connection_rate: Option<f64>,
    pub delay_ms: f64,
    pub jitter_ms: f64,
    pub window_bytes: Option<u64>,
    pub first_byte_ms: f64,
    pub direction: Direction,
    pub reset_after_bytes: Option<u64>,
    pub reset_mean_bytes: Option<u64>,
    pub truncate_after_bytes: Option<u64>,
    pub truncate_mean_bytes: Option<u64>,
    pub stall_after_bytes: Option<u64>,
    pub stall_mean_bytes: Option<u64>,
    pub flip_after_bytes: Option<u64>,
    pub flip_mean_bytes: Option<u64>,
    pub swap_after_bytes: Option<u64>,
    pub swap_mean_bytes: Option<u64>,
    pub is_stalled: bool,
    pub is_half_open: bool,
    pub max_connections: Option<u64>,
    pub slow_every: Option<u64>,
    pub slow_connections: BTreeSet<u64>,
    pub slow_delay_factor: f64,
    pub slow_rate: Option<f64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            rate: None,
            connection_rate: None,
            delay_ms: 0.0,
            jitter_ms: 0.0,
            window_bytes: None,
            first_byte_ms: 0.0,
            direction: Direction::Down,
            reset_after_bytes: None,
            reset_mean_bytes: None,
            truncate_after_bytes: None,
            truncate_mean_bytes: None,
            stall_after_bytes: None,
            stall_mean_bytes: None,
            flip_after_bytes: None,
            flip_mean_bytes: None,
            swap_after_bytes: None,
            swap_mean_bytes: None,
            is_stalled: false,
            is_half_open: false,
            max_connections: None,
            slow_every: None,
            slow_connections: BTreeSet::new(),
            slow_delay_factor: 1.0,
            slow_rate: None,
        }
    }
}

impl Settings {
    /// These settings with some of them replaced; a null puts one back to its default.
    pub fn changed(&self, changes: Map<String, Value>) -> Result<Self, String> {
        let Ok(Value::Object(mut values)) = serde_json::to_value(self) else {
            return Err("settings do not form an object".to_owned());
        };
        for (name, value) in changes {
            if !values.contains_key(&name) {
                let known: Vec<_> = values.keys().cloned().collect();
                return Err(format!("there is no setting {name}; there are: {}", known.join(" ")));
            }
            values.insert(name, value);
        }
        values.retain(|_, value| !value.is_null());
        let settings: Self = serde_json::from_value(Value::Object(values)).map_err(|error| error.to_string())?;
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), String> {
        let numbers = [
            ("rate", self.rate.unwrap_or(0.0)),
            ("connection_rate", self.connection_rate.unwrap_or(0.0)),
            ("slow_rate", self.slow_rate.unwrap_or(0.0)),
            ("delay_ms", self.delay_ms),
            ("jitter_ms", self.jitter_ms),
            ("first_byte_ms", self.first_byte_ms),
            ("slow_delay_factor", self.slow_delay_factor),
        ];
        for (name, value) in numbers {
            if !(0.0..=1e12).contains(&value) {
                return Err(format!("{name} must be between 0 and 1e12, not {value}"));
            }
        }
        Ok(())
    }

    pub fn link_rate(&self) -> Option<f64> {
        self.rate.filter(|rate| *rate > 0.0)
    }

    pub fn rate_of(&self, is_slow: bool) -> Option<f64> {
        let slow = self.slow_rate.filter(|rate| is_slow && *rate > 0.0);
        let own = self.connection_rate.filter(|rate| *rate > 0.0);
        match (own, slow) {
            (Some(own), Some(slow)) => Some(own.min(slow)),
            (own, slow) => own.or(slow),
        }
    }

    pub fn delay_of(&self, is_slow: bool) -> Duration {
        let factor = if is_slow { self.slow_delay_factor } else { 1.0 };
        milliseconds(self.delay_ms * factor)
    }

    pub fn window(&self) -> Option<u64> {
        self.window_bytes.filter(|bytes| *bytes > 0)
    }

    /// Connections are counted from 0; every k-th is slow, and those that were named.
    pub fn is_slow(&self, connection: u64) -> bool {
        self.slow_connections.contains(&connection)
            || self.slow_every.is_some_and(|every| every > 0 && connection % every == every - 1)
    }

    pub fn reset(&self) -> Option<Place> {
        place(self.reset_after_bytes, self.reset_mean_bytes)
    }

    pub fn truncate(&self) -> Option<Place> {
        place(self.truncate_after_bytes, self.truncate_mean_bytes)
    }

    pub fn stall(&self) -> Option<Place> {
        place(self.stall_after_bytes, self.stall_mean_bytes)
    }

    pub fn flip(&self) -> Option<Place> {
        place(self.flip_after_bytes, self.flip_mean_bytes)
    }

    pub fn swap(&self) -> Option<Place> {
        place(self.swap_after_bytes, self.swap_mean_bytes)
    }
}

fn place(after: Option<u64>, mean: Option<u64>) -> Option<Place> {
    after.map(Place::At).or(mean.filter(|bytes| *bytes > 0).map(Place::Mean))
}

pub fn milliseconds(value: f64) -> Duration {
    Duration::from_secs_f64(value / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn change_keeps_the_others_and_null_resets() {
        let first = Settings::default().changed(changes(r#"{"delay_ms": 5, "rate": 1000}"#)).unwrap();
        let second = first.changed(changes(r#"{"rate": null, "jitter_ms": 1}"#)).unwrap();
        assert_eq!((second.delay_of(false), second.link_rate()), (Duration::from_millis(5), None));
    }

    #[test]
    fn unknown_and_impossible_settings_are_refused_with_their_name() {
        let unknown = Settings::default().changed(changes(r#"{"dealy_ms": 5}"#)).unwrap_err();
        assert!(unknown.contains("no setting dealy_ms") && unknown.contains(" delay_ms "));
        let negative = Settings::default().changed(changes(r#"{"delay_ms": -1}"#)).unwrap_err();
        assert!(negative.contains("delay_ms must be"));
    }

    #[test]
    fn every_fourth_connection_is_slow() {
        let settings = Settings { slow_every: Some(4), slow_delay_factor: 5.0, delay_ms: 10.0, ..Settings::default() };
        let slow: Vec<u64> = (0..8).filter(|index| settings.is_slow(*index)).collect();
        assert_eq!((slow, settings.delay_of(true)), (vec![3, 7], Duration::from_millis(50)));
    }

    #[test]
    fn named_connections_are_slow_until_null_takes_them_back() {
        let named = Settings::default().changed(changes(r#"{"slow_connections": [5, 2]}"#)).unwrap();
        let healed = named.changed(changes(r#"{"slow_connections": null}"#)).unwrap();
        let slow_ones = |settings: &Settings| (0..8).filter(|index| settings.is_slow(*index)).collect::<Vec<_>>();
        assert_eq!((slow_ones(&named), slow_ones(&healed)), (vec![2, 5], vec![]));
    }
}
