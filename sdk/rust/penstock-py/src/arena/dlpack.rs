//! A block as a `DLPack` tensor: one dimension of bytes in the memory of this machine, writable.
//!
//! The structures are those of `dlpack.h`. A consumer that takes a tensor renames its capsule and calls the tensor's
//! deleter when it is done, on any thread; a capsule that nobody took deletes its tensor itself.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Arc;

use penstock_core::arena::Block;
use pyo3::ffi;
use pyo3::prelude::*;

/// The kind and number of the device whose memory this is.
pub const CPU: (i32, i32) = (1, 0);

const UNSIGNED: u8 = 1;

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_kind: i32,
    device_number: i32,
    dimensions: i32,
    type_code: u8,
    type_bits: u8,
    type_lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// The form before version 1.
#[repr(C)]
struct Unversioned {
    tensor: Tensor,
    context: *mut c_void,
    deleter: unsafe extern "C" fn(*mut Self),
}

#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: unsafe extern "C" fn(*mut Self),
    flags: u64,
    tensor: Tensor,
}

/// What a tensor points to, kept for as long as it lives.
struct Exported {
    shape: i64,
    stride: i64,
    _block: Arc<Block>,
}

impl Exported {
    /// The tensor, and the memory that its deleter has to give back.
    fn tensor(block: &Arc<Block>) -> PyResult<(Tensor, *mut c_void)> {
        let exported = Box::into_raw(Box::new(Self {
            shape: i64::try_from(block.len())?,
            stride: 1,
            _block: Arc::clone(block),
        }));
        let data = if block.is_empty() {
            ptr::null_mut()
        } else {
            block.as_ptr().cast()
        };
        // SAFETY: just made, and only the deleter frees it.
        let (shape, strides) = unsafe { (&raw mut (*exported).shape, &raw mut (*exported).stride) };
        let tensor = Tensor {
            data,
            device_kind: CPU.0,
            device_number: CPU.1,
            dimensions: 1,
            type_code: UNSIGNED,
            type_bits: 8,
            type_lanes: 1,
            shape,
            strides,
            byte_offset: 0,
        };
        Ok((tensor, exported.cast()))
    }
}

/// A form of tensor that knows its name and how to be deleted.
trait Managed: Sized {
    const NAME: &CStr;
    fn context(&self) -> *mut c_void;
    fn deleter(&self) -> unsafe extern "C" fn(*mut Self);
}

impl Managed for Unversioned {
    const NAME: &CStr = c"dltensor";

    fn context(&self) -> *mut c_void {
        self.context
    }

    fn deleter(&self) -> unsafe extern "C" fn(*mut Self) {
        self.deleter
    }
}

impl Managed for Versioned {
    const NAME: &CStr = c"dltensor_versioned";

    fn context(&self) -> *mut c_void {
        self.context
    }

    fn deleter(&self) -> unsafe extern "C" fn(*mut Self) {
        self.deleter
    }
}

pub fn unversioned<'py>(py: Python<'py>, block: &Arc<Block>) -> PyResult<Bound<'py, PyAny>> {
    let (tensor, context) = Exported::tensor(block)?;
    let deleter = delete;
    capsule(
        py,
        Unversioned {
            tensor,
            context,
            deleter,
        },
    )
}

pub fn versioned<'py>(py: Python<'py>, block: &Arc<Block>) -> PyResult<Bound<'py, PyAny>> {
    let (tensor, context) = Exported::tensor(block)?;
    let managed = Versioned {
        major: 1,
        minor: 0,
        context,
        deleter: delete,
        // Neither read-only nor a copy.
        flags: 0,
        tensor,
    };
    capsule(py, managed)
}

fn capsule<T: Managed>(py: Python<'_>, managed: T) -> PyResult<Bound<'_, PyAny>> {
    let managed = Box::into_raw(Box::new(managed));
    // SAFETY: the pointer is not null and the name lives for ever; the capsule owns the tensor from here on.
    unsafe {
        let capsule = ffi::PyCapsule_New(managed.cast(), T::NAME.as_ptr(), Some(end_capsule::<T>));
        Bound::from_owned_ptr_or_err(py, capsule).inspect_err(|_| delete(managed))
    }
}

/// Gives back a tensor and its hold on the block.
unsafe extern "C" fn delete<T: Managed>(managed: *mut T) {
    // SAFETY: both were made by `Box::into_raw` here, and a deleter is called once.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context().cast::<Exported>()));
    }
}

/// A consumer that takes the tensor renames the capsule: then the tensor is its own.
unsafe extern "C" fn end_capsule<T: Managed>(capsule: *mut ffi::PyObject) {
    // SAFETY: called by the interpreter with the capsule made above.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, T::NAME.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(capsule, T::NAME.as_ptr()).cast::<T>();
            ((*managed).deleter())(managed);
        }
    }
}
