/* SPDX-License-Identifier: Apache-2.0 */
/* empty - a library that is there by its name. */
__attribute__((visibility("default"))) int empty_library;
