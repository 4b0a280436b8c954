//! The suite on the toy store: "Adding a store" in `CONTRIBUTING.md`, followed to the end.

use std::sync::Arc;

use async_trait::async_trait;
use clinch_core::store::{Admin, OpenContext, StoreInfo};
use clinch_core::{Result, StoreUrl};
use clinch_testkit::conformance::{self, Place, Subject};
use clinch_testkit::servers::Folder;
use clinch_testkit::toy::ToyStore;

struct Toy;

struct File(Folder);

#[async_trait]
impl Subject for Toy {
    fn name(&self) -> String {
        "toy".into()
    }

    fn info(&self) -> StoreInfo {
        ToyStore::describe()
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        Ok(Box::new(File(Folder::new("toy")?)))
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Admin>> {
        let path = url.parse::<StoreUrl>()?.path()?;
        Ok(Arc::new(ToyStore::open(path.into(), context)?))
    }
}

#[async_trait]
impl Place for File {
    fn url(&self) -> String {
        format!("toy:{}", self.0.path().join("locks").display())
    }

    async fn lose_data(&self) -> Result<bool> {
        Ok(std::fs::remove_file(self.0.path().join("locks")).is_ok())
    }

    async fn lose_data_live(&self) -> Result<bool> {
        self.lose_data().await
    }
}

fn main() -> std::process::ExitCode {
    conformance::main(vec![Box::new(Toy)])
}
