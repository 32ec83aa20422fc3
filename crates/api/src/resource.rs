//! Macros that implement `kube::Resource` for a type by the kind that another type has.

/// Gives a type that holds an object the kind of that object: `resource_within!(Holder, meta, meta_mut)`, with two functions from
/// the holder to its metadata.
#[macro_export]
macro_rules! resource_within {
    ($holder:ident, $meta:expr, $meta_mut:expr) => {
        impl<K: ::kube::Resource<DynamicType = ()>> ::kube::Resource for $holder<K> {
            type DynamicType = ();
            type Scope = K::Scope;

            fn kind((): &()) -> ::std::borrow::Cow<'_, str> {
                K::kind(&())
            }

            fn group((): &()) -> ::std::borrow::Cow<'_, str> {
                K::group(&())
            }

            fn version((): &()) -> ::std::borrow::Cow<'_, str> {
                K::version(&())
            }

            fn plural((): &()) -> ::std::borrow::Cow<'_, str> {
                K::plural(&())
            }

            fn meta(&self) -> &::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                $meta(self)
            }

            fn meta_mut(&mut self) -> &mut ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                $meta_mut(self)
            }
        }
    };
}

/// Gives a slim type the kind of the full type: `stands_for!(PodOnWire, Pod)`. The slim type has a field `metadata`.
#[macro_export]
macro_rules! stands_for {
    ($slim:ty, $full:ty) => {
        impl ::kube::Resource for $slim {
            type DynamicType = ();
            type Scope = <$full as ::kube::Resource>::Scope;

            fn kind((): &()) -> ::std::borrow::Cow<'_, str> {
                <$full as ::kube::Resource>::kind(&())
            }

            fn group((): &()) -> ::std::borrow::Cow<'_, str> {
                <$full as ::kube::Resource>::group(&())
            }

            fn version((): &()) -> ::std::borrow::Cow<'_, str> {
                <$full as ::kube::Resource>::version(&())
            }

            fn plural((): &()) -> ::std::borrow::Cow<'_, str> {
                <$full as ::kube::Resource>::plural(&())
            }

            fn meta(&self) -> &::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
