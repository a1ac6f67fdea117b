//! The two ways in which a statement of ours is run: prepared and kept, on connections of our own; unnamed and typed,
//! on a caller's, who may sit behind a pooler that keeps no prepared statements.

use std::future::Future;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, GenericClient, Row};

use super::pool::Connection;

/// A parameter and its type.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Runs one of our statements.
pub(super) trait Run: Sync {
    fn rows(
        &self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> impl Future<Output = Result<Vec<Row>, Error>> + Send;
}

/// On a caller's connection or transaction. The plan is made for this one time, from the table as it is: a generic
/// plan kept from when the table was empty would scan it for ever.
pub(super) struct Once<'a, C>(pub(super) &'a C);

impl<C: GenericClient + Sync> Run for Once<'_, C> {
    async fn rows(&self, sql: &'static str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        self.0.query_typed(sql, parameters).await
    }
}

/// On a connection of our own, which keeps the statement, if the server behind it is always the same.
impl Run for Connection {
    async fn rows(&self, sql: &'static str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        if !self.keeps() {
            return self.wrapper.query_typed(sql, parameters).await;
        }
        let types: Vec<_> = parameters.iter().map(|(_, kind)| kind.clone()).collect();
        let statement = self.wrapper.prepare_typed_cached(sql, &types).await?;
        let values: Vec<_> = parameters.iter().map(|(value, _)| *value).collect();
        self.wrapper.query(&statement, &values).await
    }
}
