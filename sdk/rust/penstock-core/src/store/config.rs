//! The configuration of a store as JSON, and the one place that turns it into a store.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use super::{CqlStore, FaultPlan, LmdbStore, MemoryStore, Store};
use crate::errors::OpenError;

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum StoreConfig {
    Lmdb(LmdbConfig),
    Cql(CqlConfig),
    Memory(MemoryConfig),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LmdbConfig {
    /// The folder that holds one environment a dataset.
    pub path: PathBuf,
    #[serde(default)]
    pub is_read_only: bool,
    /// Address space of a new environment, a gibibyte when absent; it doubles by itself when it is full.
    #[serde(default)]
    pub first_map_bytes: Option<usize>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CqlConfig {
    /// `host:port`, or `host` for the usual port.
    pub contact_points: Vec<String>,
    pub local_dc: String,
    /// `ps_` and the project's 32 hexadecimal digits.
    pub keyspace: String,
    #[serde(default)]
    pub username: Option<String>,
    #[serde(default)]
    pub password: Option<Secret>,
    /// Certificates that sign the nodes' ones; with it every connection is TLS.
    #[serde(default)]
    pub ca_pem: Option<String>,
    /// Connections a node that carry reads; found by itself when absent.
    #[serde(default)]
    pub lanes: Option<usize>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryConfig {
    /// Stores of one name in one process share their content.
    pub name: String,
    #[serde(default)]
    pub faults: Option<FaultPlan>,
}

/// A password: never printed, not even by the error of a wrong configuration.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => Ok(Self(text)),
            _ => Err(serde::de::Error::custom("password has to be text")),
        }
    }
}

impl StoreConfig {
    pub fn from_json(text: &str) -> Result<Self, OpenError> {
        serde_json::from_str(text).map_err(|error| OpenError::Config {
            message: format!("the store configuration cannot be read: {error}"),
        })
    }
}

/// Opens the store that a configuration describes.
pub async fn open(config: StoreConfig) -> Result<Arc<dyn Store>, OpenError> {
    Ok(match config {
        StoreConfig::Lmdb(lmdb) => Arc::new(LmdbStore::open(lmdb)?),
        StoreConfig::Cql(cql) => Arc::new(CqlStore::open(cql).await?),
        StoreConfig::Memory(memory) => Arc::new(MemoryStore::open(memory)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_kind_is_named() {
        let error = StoreConfig::from_json(r#"{"kind":"tape"}"#).unwrap_err();
        assert!(error.to_string().contains("tape"), "{error}");
    }

    #[test]
    fn password_is_in_no_message() {
        let config = r#"{"kind":"cql","contact_points":[],"local_dc":"d","keyspace":"k","password":48151623}"#;
        let message = StoreConfig::from_json(config).unwrap_err().to_string();
        assert!(!message.contains("48151623"), "{message}");
        let config = r#"{"kind":"cql","contact_points":[],"local_dc":"d","keyspace":"k","password":"canary"}"#;
        let parsed = StoreConfig::from_json(config).unwrap();
        assert!(!format!("{parsed:?}").contains("canary"));
    }
}
