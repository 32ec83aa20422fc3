//! A ConfigMap of ours, written whole: what was in it before is replaced.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use kube::{Client, Error};

use crate::requests::{Failure, RefusedWrite, failure_of_write};

pub async fn write(
    client: &Client,
    namespace: &str,
    name: &str,
    data: BTreeMap<String, String>,
) -> Result<(), Failure> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let is_empty = data.is_empty();
    let labels = [("app.kubernetes.io/name".to_owned(), "usher".to_owned())];
    let object = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..ConfigMap::default()
    };
    match maps.replace(name, &PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        // An empty one is made as well: the API server reads the parameter of a policy again and again as long as there is none.
        Err(Error::Api(status)) if status.code == 404 => {
            match maps.create(&PostParams::default(), &object).await {
                Ok(_) => Ok(()),
                // Where it must not be, or cannot be, none says as much as an empty one.
                Err(Error::Api(status)) if is_empty && [403, 404].contains(&status.code) => Ok(()),
                Err(Error::Api(status)) if status.code == 404 => {
                    let message = format!("there is no namespace {namespace}");
                    Err(Failure::Refused { reason: RefusedWrite::NoNamespace, message })
                }
                Err(why) => Err(failure_of_write(why)),
            }
        }
        Err(why) => Err(failure_of_write(why)),
    }
}
